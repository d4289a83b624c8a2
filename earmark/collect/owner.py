"""The owner's routes: how far the study is, how raters agree, who needs a look, and the ratings as a table."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar

from anyio import CapacityLimiter, to_thread
from fastapi import FastAPI
from starlette.responses import Response

from earmark.collect.export import of_kind, ratings_table, without_formulas
from earmark.collect.flow import Flow, RaterRow
from earmark.collect.sources import counted, rating_of
from earmark.files import table_text
from earmark.measure.agreement import agreement
from earmark.measure.raters import raters
from earmark.relevance import Rating
from earmark.web.ranges import disposition

T = TypeVar("T")
Json = dict[str, Any]
What = Literal["ratings", "passed", "all", "history"]


def owner_routes(app: FastAPI, flow: Flow) -> None:
    """Adds them; the guard before the application asks for the owner's token."""
    alone = CapacityLimiter(1)  # the owner's tables are made one after the other: raters come first

    async def made(function: Callable[..., T], *arguments: Any) -> T:
        return await to_thread.run_sync(function, *arguments, limiter=alone)

    @app.get("/api/owner/progress")
    async def progress() -> Json:
        """How far the study is, and how many ratings each stratum has of those that are wanted."""
        return await made(progress_of, flow)

    @app.get("/api/owner/raters")
    async def all_raters() -> Json:
        """Every rater, with what may be wrong with their answers."""
        return await made(raters_of, flow)

    @app.get("/api/owner/agreement")
    async def agrees() -> Json:
        """How far raters agree on task pages; with and without those who failed the checks."""
        return await made(agreement_of, flow)

    @app.get("/api/owner/export", response_class=Response)
    async def export(what: What = "ratings") -> Response:
        """The ratings as CSV: those that count (`ratings`, of task pages that were submitted), the same without raters
        who failed the checks (`passed`), of all kinds of pages (`all`), or every answer ever given (`history`)."""
        body = await made(table_of, flow, what)
        day = datetime.now(UTC).strftime("%Y-%m-%d")
        headers = {"content-disposition": disposition(f"{what}-{day}.csv")}
        return Response(body.encode(), media_type="text/csv; charset=utf-8", headers=headers)


def progress_of(flow: Flow) -> Json:
    """Counts, as JSON."""
    study, rows = flow.study, flow.raters()
    given = Counter((rating.stratum, rating.group) for rating in _counted(flow, rows))
    pairs: Counter[tuple[str, str]] = Counter()
    for page in study.of_kind("task"):
        pairs.update((item.stratum, item.group) for item in page.items)
    each = study.settings.raters_a_page
    strata = [
        {"stratum": stratum, "group": group, "pairs": n, "ratings": given[stratum, group], "wanted": n * each}
        for (stratum, group), n in sorted(pairs.items())
    ]
    return {"title": study.settings.title, "progress": asdict(flow.progress()), "strata": strata}


def raters_of(flow: Flow) -> Json:
    """A row a rater, with flags, as JSON."""
    rows, share = flow.raters(), flow.study.settings.checks_share
    checks = {row.rater_id: (row.checks_right, row.checks_asked) for row in rows if row.checks_asked}
    found = raters(_counted(flow, rows), checks=checks, checks_share=share)
    by_id = {rater.rater_id: rater for rater in found.rows}
    made = []
    for row in rows:
        told = {**asdict(row), "failed_checks": row.failed_checks(share), "flags": [], "unsure": "", "r": None}
        if rater := by_id.get(row.rater_id):
            flags = [flag._asdict() for flag in rater.flags]
            told |= {"flags": flags, "unsure": rater.unsure, "r": _plain(rater.r)}
        made.append(told)
    return {"raters": made, "flagged": len(found.flagged), "expected_by_chance": _plain(found.expected)}


def agreement_of(flow: Flow) -> Json:
    """Agreement of the ratings that count, as JSON."""
    rows = flow.raters()
    given, failed = _counted(flow, rows), _failed(flow, rows)
    passed = [rating for rating in given if rating.rater_id not in failed]
    return {
        "all": _plain(agreement(given).numbers()),
        "passed": _plain(agreement(passed).numbers()) if failed else None,
        "failed_raters": len(failed),
    }


def table_of(flow: Flow, what: What) -> str:
    """CSV with the columns of ratings.csv and more; no cell is a spreadsheet's formula."""
    if what in ("all", "history"):
        given = [(each.kind, rating_of(each)) for each in flow.ratings(history=what == "history")]
    else:
        rows = flow.raters()
        failed = _failed(flow, rows) if what == "passed" else set()
        given = [("task", rating) for rating in _counted(flow, rows) if rating.rater_id not in failed]
    named = [replace(rating, more={"kind": kind, **rating.more}) for kind, rating in given]
    return table_text(*without_formulas(*of_kind(flow.study.kind, *ratings_table(named))))


def _counted(flow: Flow, rows: Sequence[RaterRow]) -> list[Rating]:
    """The ratings that count: of task pages that were submitted, by raters who qualified."""
    return counted(flow.ratings(), rows)[0]


def _failed(flow: Flow, rows: Sequence[RaterRow]) -> set[str]:
    """Raters who failed the checks."""
    share = flow.study.settings.checks_share
    return {row.rater_id for row in rows if row.failed_checks(share)}


def _plain(value: Any) -> Any:
    """The same without numbers that JSON has not: those are null."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value.item() if hasattr(value, "item") else value
