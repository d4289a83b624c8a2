"""Search: what it finds on real sounds, how fast it answers, and how much of the exact answer IVF_SQ gives.

    python benchmarks/search.py quality INDEX ../shared/data/library.csv ../shared/data/texts/freesound_search_terms.csv
    python benchmarks/search.py without INDEX ../shared/data/library.csv ../shared/data/texts/freesound_search_terms.csv
    python benchmarks/search.py speed INDEX
    python benchmarks/search.py scale INDEX --to FOLDER [--windows 1000000]

INDEX is made by `earmark index ../shared/data/library --to INDEX`. `quality`: each of the library's 824 texts is a
query, to which the files of just that text are relevant; of the 2,000 most frequent search terms those are queries
that match 3 to 200 files, whose text holds every word as a whole word or with a plural s. `without`: pairs of classes
of which clips of both stand in the first ten of a query; one is then excluded. `scale` makes an index of jittered
copies of INDEX's vectors (8 GB for 1,000,000 of 768 values), each file of 1 to 9 windows, and measures recall@10
against exact search with and without filters (`earmark index --check`), beside milliseconds. Ends with 1 where a bound
of the list `BOUNDS` is missed.
"""

from __future__ import annotations

BOUNDS = {
    "texts, by embedding alone: mAP": 0.10,
    "texts, by embedding alone: hit@10": 0.21,
    "search terms, by embedding alone: hit@10": 0.50,
    "search terms, with keywords: hit@10": 0.98,
    "excluded leaves and wanted stays, with keywords": 0.80,
    "recall@10": 0.95,
}
MOST_FREQUENT, FEWEST, MOST = 2000, 3, 200
JITTER = 0.25
"""Standard deviation of what is added to a unit vector, as a share of its length: a copy's cosine is about 0.97."""
AT_ONCE = 50_000
