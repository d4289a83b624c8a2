"""A study from a collection: which captions are asked, with which clips, on which pages; checks with known answers.

`plan` has the settings, `strata` says which clips a caption is asked with.
"""

from __future__ import annotations

import hashlib
import math
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random import Generator, SeedSequence, default_rng

from earmark.collect.frame import Frame, Progress, Scorer, frame, in_turn, likeness
from earmark.collect.plan import Plan as Plan
from earmark.collect.strata import GROUPS, Asked, Others, lists_of, others_of
from earmark.collect.study import Item, Kind, Page, Study, checks_seen
from earmark.data.collection import Caption, Collection
from earmark.data.overlap import plain_text
from earmark.errors import DataError, Problem
from earmark.files import check_new_folder

if TYPE_CHECKING:
    from earmark.learn.estimates import Scored
    from earmark.model.dual_encoder import RunTexts
    from earmark.model.text_encoders import SentenceEncoder

CAPTIONS = 200
"""As many as are asked, at most, where nobody says (a split of GrRel's)."""
ANSWER_S = 5.0
"""What an answer takes beside listening, for the estimate of a rater's time."""
STREAMS = {"captions": 0, "others": 1, "draws": 2, "pages": 3, "checks": 4}
"""Streams of random numbers that share nothing."""
CONSENT = """\
# Before you begin

You will hear short sounds and say how well each of them matches a description.

- Taking part is voluntary. You may stop at any time, by closing the page.
- What is kept: your answers, how long and how often you played each sound, and when. If a platform sent you here, also
  the ids that it put into the address. Nothing else about you is kept: no name, no address.
- The answers are used for research on how sounds and words match.

Questions, or do you want your answers deleted? Write to the person who invited you.
"""
INSTRUCTIONS = """\
# What to do

On each page you read one description and hear several sounds. Say of **each** sound how well it matches the
description, from 0 to 100:

- **0**: {low}
- **100**: {high}
- Anything between: parts of it match.

Please use headphones, in a quiet place. Listen to each sound to its end before you answer; play it as often as you
like. Judge what you hear, not how good the recording is. There is no order among the sounds: several of them may match
well, or none.
"""


def make_study(
    collection: Collection,
    folder: Path,
    plan: Plan,
    *,
    scores: Scored | None = None,
    progress: Progress | None = None,
) -> Study:
    """The study that is written to `folder`: task pages by the plan, checks, the owner's texts.

    Clips are ranked by `scores`, or else by the likeness of captions. The clips that cannot be heard are in the
    study's problems. The same collection, plan and scores give the same bytes. Raises `DataError` where `folder` is
    not empty or the collection has too little to ask, `ConfigError` where the plan cannot be carried out.
    """
    check_new_folder(folder)
    if scores is not None and not plan.run:
        plan = replace(plan, run="scores")
    encoder = _encoder(plan, scores)  # what is missing is told before the work begins
    found = frame(collection, plan.split or None, _without(collection, scores), progress)
    rated = {} if plan.again else _rated(collection, found)
    tasks, checks = _captions(collection, found, plan, rated)
    scorer = scores.scorer if scores else None
    if encoder is not None:
        scorer = likeness(found, lambda texts: encoder.encode(texts, progress))
    others = others_of(found, [*tasks, *checks], rated, scorer, _rng(plan, "others"))
    lists = lists_of(found, plan, others[: len(tasks)], _rng(plan, "draws"), progress)
    pages = _task_pages(found, plan, tasks, lists)
    if not pages:
        raise DataError(
            f"{collection.root}: no pair is left to ask: all are rated or known. Add clips, or ask again (--again)."
        )
    pages += _check_pages(found, plan, checks, others[len(tasks) :], [len(page.items) for page in pages])
    study = Study(
        folder,
        plan.study,
        collection.root.resolve(),
        collection.name,
        collection.kind,
        tuple(pages),
        CONSENT,
        INSTRUCTIONS.format(low=plan.study.low_end, high=plan.study.high_end),
        _chosen(found, plan, pages, lists, scorer),
        tuple(found.problems),
    )
    study.write()
    return study


def _rng(plan: Plan, stream: str) -> Generator:
    return default_rng(SeedSequence([plan.seed, STREAMS[stream]]))


def _without(collection: Collection, scores: Scored | None) -> dict[str, Problem]:
    """Clips that have no score, and why."""
    if scores is None:
        return {}
    reasons = {problem.where: problem.what for problem in scores.problems}
    return {
        clip: Problem(
            collection.where("clips.csv", clip), reasons.get(f"clip {clip!r}", "the run cannot score it. Left out.")
        )
        for clip in sorted(scores.without)
    }


# Which captions


def _captions(
    collection: Collection, found: Frame, plan: Plan, rated: Mapping[str, set[int]]
) -> tuple[list[Caption], list[Caption]]:
    """The captions of the task pages, and those of the pages with known answers, whose own pairs nobody rated."""
    ordered = in_turn(found, _rng(plan, "captions"))
    apart = _checks(plan, len(ordered)) + plan.study.qualify
    fresh = [each for each in ordered if found.at[each.clip_id] not in rated.get(found.text[each.caption_id], ())]
    checks = fresh[len(fresh) - apart :] if apart <= len(fresh) else []
    left = len(ordered) - apart
    if left < max(1, plan.captions) or len(checks) < apart:
        what = (
            f"{len(ordered)} different captions of clips that can be heard, {len(fresh)} not yet rated with their own"
        )
        advice = (
            "Ask fewer (--captions)" if 0 < left < plan.captions else "Ask fewer checks (--checks, --set qualify=0)"
        )
        raise DataError(
            f"{collection.root}: {what}; expected {max(1, plan.captions)} to ask, and {apart} more of the latter for "
            f"checks and qualification. {advice}, or add captions."
        )
    known = {caption.caption_id for caption in checks}
    tasks = [caption for caption in ordered if caption.caption_id not in known]
    return tasks[: plan.captions or CAPTIONS], checks


def _checks(plan: Plan, captions: int) -> int:
    """How many check pages there are: no rater sees one twice, and where captions suffice not all see the same."""
    if plan.checks >= 0:
        return plan.checks
    seen = checks_seen(plan.study, plan.study.pages_a_rater)
    return max(seen, min(2 * seen, captions // 4))


# Which clips


def _encoder(plan: Plan, scores: Scored | None) -> SentenceEncoder | RunTexts | None:
    """What tells which captions are alike; None where nothing needs it."""
    if scores is not None or not plan.similar + plan.middle:
        return None
    from earmark.model.dual_encoder import text_option

    return text_option(plan.encoder, "--encoder")


def _rated(collection: Collection, found: Frame) -> dict[str, set[int]]:
    """Plain text → the places of the clips that it was rated with."""
    texts = {caption.caption_id: plain_text(caption.text) for caption in collection.captions}
    rated: dict[str, set[int]] = {}
    for rating in collection.ratings:
        if rating.clip_id in found.at:
            rated.setdefault(texts[rating.caption_id], set()).add(found.at[rating.clip_id])
    return rated


# Pages


def _task_pages(found: Frame, plan: Plan, captions: Sequence[Caption], lists: Sequence[list[Asked]]) -> list[Page]:
    """Each caption's list dealt to pages of as equal a size as can be."""
    rng = _rng(plan, "pages")
    dealt: list[tuple[Caption, list[Item]]] = []
    for caption, asked in zip(captions, lists, strict=True):
        items = [_item(found, asked[at]) for at in rng.permutation(len(asked))]
        count = math.ceil(len(items) / plan.page)
        dealt += [(caption, items[len(items) * k // count : len(items) * (k + 1) // count]) for k in range(count)]
    return [_page("t", "task", number, dealt) for number in range(len(dealt))]


def _item(found: Frame, asked: Asked) -> Item:
    clip = found.clips[asked.place]
    return Item(clip.clip_id, clip.path, GROUPS[asked.stratum], asked.stratum, asked.probability)


def _page(letter: str, kind: Kind, number: int, dealt: Sequence[tuple[Caption, list[Item]]]) -> Page:
    """The page of that number; its id begins with a letter, so that spreadsheets leave it as it is."""
    caption, items = dealt[number]
    name = f"{letter}{number + 1:0{len(str(len(dealt)))}d}"
    return Page(name, kind, caption.caption_id, caption.text, tuple(items))


def _check_pages(
    found: Frame, plan: Plan, captions: Sequence[Caption], others: Sequence[Others], sizes: Sequence[int]
) -> list[Page]:
    """Pages with known answers: the own clip and random others, of the lower half of the ranks where there are any.

    They are as large as task pages, whose `sizes` they are dealt in random order, so that none is told by its size.
    """
    rng = _rng(plan, "checks")
    dealt: list[tuple[Caption, list[Item]]] = []
    planned = zip(captions, others, _dealt(sizes, len(captions), rng), strict=True)
    for number, (caption, each, size) in enumerate(planned):
        low = each.distant[~np.isin(each.distant, each.ranked[: len(each.ranked) // 2])]
        places = [found.at[caption.clip_id], *low[: max(1, size - 1)]]  # they come in random order
        shown = rng.permutation(len(places)) if size > 1 else [number % len(places)]
        dealt.append((caption, [_known(found, plan, places, int(at)) for at in shown]))
    qualify, checks = dealt[: plan.study.qualify], dealt[plan.study.qualify :]
    pages = [_page("c", "check", number, checks) for number in range(len(checks))]
    return pages + [_page("q", "qualification", number, qualify) for number in range(len(qualify))]


def _dealt(sizes: Sequence[int], count: int, rng: Generator) -> list[int]:
    """So many of the sizes in random order, each as often as its share of all says, rounded up or down."""
    ordered = np.sort(sizes)
    at = (np.arange(count) + rng.random()) * len(ordered) / max(1, count)
    return [int(size) for size in rng.permutation(ordered[at.astype(np.int64)])]


def _known(found: Frame, plan: Plan, places: Sequence[int], at: int) -> Item:
    """The clip of a check: the first of the places is the own one; beyond some others any answer is right."""
    clip = found.clips[places[at]]
    low = plan.own_low if at == 0 else None
    high = plan.other_high if 0 < at <= plan.known_others else None
    return Item(clip.clip_id, clip.path, low=low, high=high)


# What was made


def _chosen(
    found: Frame, plan: Plan, pages: Sequence[Page], lists: Sequence[list[Asked]], scorer: Scorer | None
) -> dict[str, Any]:
    """`[pool]` of study.toml."""
    settings = {key: value for key, value in asdict(plan).items() if key not in ("study", "encoder", "run")}
    settings |= {"captions": sum(map(bool, lists)), "checks": sum(page.kind == "check" for page in pages)}
    if scorer is not None:
        settings["ranked_by"] = f"run {plan.run}" if plan.run else f"captions, {plan.encoder}"
    wanted = plan.own + plan.similar + plan.middle + plan.random
    short = sum(len(asked) < wanted for asked in lists)
    facts = {"clips": len(found.clips), "clips_left_out": len(found.problems), "short_lists": short}
    asked = [(page.page_id, page.caption_id, item.clip_id) for page in pages for item in page.items]
    digest = hashlib.sha256(repr(asked).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return settings | facts | {"mean_clip_s": round(found.seconds, 2), "id": digest}


def summary(study: Study) -> dict[str, Any]:
    """What was made: counts, and what it asks of raters.

    A rater's minutes are those of hearing each clip once, and `ANSWER_S` for each answer.
    """
    tasks, checks, qualification = (study.of_kind(kind) for kind in ("task", "check", "qualification"))
    items = [item for page in tasks for item in page.items]
    uses = Counter(item.clip_id for item in items)
    pages = min(study.settings.pages_a_rater, len(tasks))
    heard = pages * len(items) / len(tasks)
    for count, known in ((checks_seen(study.settings, len(tasks)), checks), (len(qualification), qualification)):
        heard += count * sum(len(page.items) for page in known) / max(1, len(known))
    needed = len(tasks) * study.settings.raters_a_page
    return {
        "study": str(study.folder),
        "collection": study.name,
        "kind": study.kind,
        "captions": len({page.caption_id for page in tasks}),
        "pairs": len(items),
        "strata": dict(Counter(item.stratum for item in items)),
        "clips": len(uses),
        "most_uses": max(uses.values()),
        "pages": len(tasks),
        "checks": len(checks),
        "qualification": len(qualification),
        "minutes_a_rater": round(heard * (study.chosen["mean_clip_s"] + ANSWER_S) / 60, 1),
        "rater_pages": needed,
        "raters": math.ceil(needed / pages),
        "short_lists": study.chosen["short_lists"],
        "left_out": len(study.problems),
        "next": f"earmark collect serve {shlex.quote(str(study.folder))}",
    }
