"""How long a tenth of finite logs takes, of the time of all: `python -m benchmarks.fidelity`.

Logs of some servers over some weeks are read in this process, all of them and then a tenth in every
form of FIDELITY, each in turn and the fastest of three rounds.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import muntin as mt
from muntin.run.inline import windows_inline

SERVERS = 8
DAYS = 28
FORMS = {
    "all": "",
    "OF TIME": "FIDELITY 10 PERCENT OF TIME",
    "OF SPACE": "FIDELITY 10 PERCENT OF SPACE",
    "area": "FIDELITY 10 PERCENT",
    "SAMPLED": "FIDELITY 10 PERCENT SAMPLED",
}


def write_logs(folder: Path, megabytes: int) -> int:
    """Records of every server at equal distances; returns their bytes."""
    line = {"ts": 1_700_000_000, "path": "/product/12345", "status": 200, "ms": 12.5}
    line |= {"agent": "Mozilla/5.0 (X11; Linux x86_64)", "referer": "https://shop.example.com/"}
    count = megabytes * 1_000_000 // SERVERS // (len(json.dumps(line)) + 1)
    for server in range(SERVERS):
        with (folder / f"web-{server:02}.jsonl").open("w") as file:
            for number in range(count):
                at = 1_700_000_000 + number * DAYS * 86_400 / count
                record = line | {"ts": round(at, 3), "path": f"/product/{number % 100}"}
                file.write(json.dumps(record) + "\n")
    return sum(path.stat().st_size for path in folder.iterdir())


def seconds(folder: Path, bounds: str, slack: str) -> tuple[float, int]:
    """What a run takes, and the bytes that it has read."""
    program = mt.sql(
        f"CREATE STREAM s FROM '{folder}/{{source}}.jsonl' FORMAT json TIMESTAMP ts{slack};"
        "CREATE JOB j AS SELECT path, count(*) AS n, avg(ms) AS ms FROM s GROUP BY path "
        f"WINDOW 1 DAY PANE 144 MINUTES {bounds};"
    )
    read: list[int] = []
    started = time.perf_counter()
    for _ in windows_inline(program, done=lambda loop: read.append(loop.progress.bytes)):
        pass
    return time.perf_counter() - started, sum(read)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=400)
    megabytes = parser.parse_args().megabytes
    with tempfile.TemporaryDirectory(prefix="muntin-fidelity-") as folder:
        size = write_logs(Path(folder), megabytes)
        for slack in (" SLACK 10 SECONDS", ""):
            took: dict[str, list[tuple[float, int]]] = {form: [] for form in FORMS}
            for _ in range(3):
                for form, bounds in FORMS.items():
                    took[form].append(seconds(Path(folder), bounds, slack))
            least = min(took["all"])[0]
            print(f"{size / 1e6:,.0f} MB{slack or ' without SLACK'}")
            for form, runs in took.items():
                best, read = min(runs)
                print(
                    f"  {form:<9} {best:6.2f} s, {100 * best / least:4.0f} % of the time, "
                    f"{100 * read / size:4.0f} % of the bytes"
                )


if __name__ == "__main__":
    main()
