"""A program that follows live logs, while faults strike; and what came of it."""

from __future__ import annotations

import pickle
import random
import shutil
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from muntin.errors import InputError, MuntinError
from muntin.store.results import Results
from muntin.store.status import status
from muntin.store.storage import Place
from tests.faults import jobs
from tests.faults.looks import damage
from tests.faults.past import Past, Range
from tests.faults.places import Bucket, Grid, bucket
from tests.faults.processes import ROOT, End, Process, Tending
from tests.faults.servers import Server, Servers
from tests.faults.told import left_empty
from tests.faults.verdict import Verdict, Window, Wrong, judge, judge_sums
from tests.ports import free_port
from tests.waiting import wait_for

PATIENCE = 240.0  # seconds, after which something does not heal
IDLE_SECONDS = 4
PLACES = ("local", "cluster", "storage")  # the last with a state of objects
_DISK_MB = 256
_POLL_SECONDS = 0.25
_EXCUSED_SECONDS = 60.0  # within which a process may end of a fault
_NEAR = 20.0  # seconds, from a fault to windows that may have nothing of its server
_QUESTIONS = 20  # about each job and stream that is retained, at the end
_END_SECONDS = 30.0  # within which processes of a process end with it


@dataclass
class Struck:
    """A fault that has struck, and what ends it."""

    kind: str
    target: str
    heal: Callable[[], object] | None = None
    seconds: float = 0.0  # until it is healed
    excuses: str = ""  # the process whose end it explains: once, or while it is not healed
    bars: str = ""  # the process that cannot start while it is not healed
    loses: bool = False  # whether records may be gone that nobody has read
    ahead: float = 0.0  # seconds, by which all clocks but those of the servers are
    at: float = 0.0
    upto: float = 0.0  # when results had gone on

    @property
    def heal_at(self) -> float:
        return self.at + self.seconds

    def explains(self, end: End) -> bool:
        """Whether a process may have ended of it."""
        if self.bars == end.who and end.was_young:
            return self.at <= end.at and end.began <= self.heal_at
        late = end.at - max(self.at, self.heal_at)
        return self.excuses == end.who and self.at <= end.at and late < _EXCUSED_SECONDS

    def hides(self, window: tuple[int, int], server: str, hurries: bool) -> bool:
        """Whether a window may have left without what this server wrote."""
        start, end = window
        if hurries and self.ahead > 0:  # deadlines pass before anything of a window is written
            return self.at < end + _NEAR and start < self.heal_at + self.ahead
        near = start - _NEAR < self.at < end + _NEAR
        return near and server in self.target and (self.loses or hurries)

    def __str__(self) -> str:
        seconds = f" for {self.seconds:.1f} s" if self.heal else ""
        return f"{self.kind} ({self.target}){seconds}"


@dataclass(frozen=True)
class Outcome:
    """What a trial came to."""

    seed: str
    struck: Sequence[Struck]
    verdict: Verdict
    ends: Sequence[End]  # of processes, which no fault explains
    left: Sequence[str]  # processes that were left behind
    damaged: Sequence[str]  # what was found in the state that cannot be read
    unhealed: str  # what did not go on, if anything

    @property
    def is_good(self) -> bool:
        others = self.ends or self.left or self.damaged or self.unhealed
        return self.verdict.is_good and not others


class UnhealedError(Exception):
    """Results do not go on."""


@dataclass(frozen=True)
class Setting:
    """What is there to be hurt, and where."""

    folder: Path
    servers: int = 3
    agents: int = 2
    on: str = PLACES[0]
    supervised: bool = False


class Trial:
    """Servers, agents, a relay and a program, from the start to the end of the block."""

    def __init__(self, setting: Setting, seed: str) -> None:
        self.seed = seed
        self.is_supervised = setting.supervised
        self.random = random.Random(seed)
        self.struck: list[Struck] = []
        self.damaged: list[str] = []
        self._past: list[Range] = []  # that was asked about
        self._wrong_past: list[Wrong] = []
        self._chance = random.Random(f"{seed} past")
        self.disks: dict[str, Path] = {}  # small ones, by the process whose state is there
        self.folder = folder = setting.folder
        self._addresses: dict[str, str] = {}
        self._stack = ExitStack()  # what is judged when it has ended
        self._around = ExitStack()  # and what is needed for that
        folder.mkdir(parents=True)
        self.grid: Grid | None = None
        self.bucket: Bucket | None = None
        if setting.on == "cluster":
            self.grid = self._around.enter_context(Grid(folder / "cluster"))
        elif setting.on == "storage":
            self.bucket = self._around.enter_context(bucket())
        self._clock = folder / "clock"
        self._clock.write_bytes(bytes(8))
        self.web = [Server(f"web-{n}", folder / "logs", seed) for n in range(setting.servers)]
        self.shop = [Server(f"shop-{n}", folder / f"shop-{n}", seed) for n in range(setting.agents)]
        self.state: Place = self.bucket.url if self.bucket else self._disk("program") / "state"
        self.agents = [self._agent(server) for server in self.shop]
        self.relays = [self._relay()] if self.agents else []
        sql = folder / "jobs.sql"
        sql.write_text(jobs.program(folder / "logs", self._listed() if self.agents else None))
        master = self.grid.master if self.grid else "local[2]"
        options = {"--state": self.state, "--master": master, "--idle": f"{IDLE_SECONDS}s"}
        words = ["run", str(sql), *["--supervise"] * setting.supervised]
        self.program = self._process("program", words, options)
        self.jobs = [*jobs.FILES, *(jobs.AGENTS if self.agents else ())]
        self.processes = [*self.agents, *self.relays, self.program]
        self._tending = Tending(self.processes)

    def __enter__(self) -> Trial:
        self._began = time.time()
        self._stack.enter_context(Servers([*self.web, *self.shop]))
        self._stack.enter_context(self._tending)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._around.close()
        for disk in self.disks.values():
            subprocess.run(["umount", str(disk)], check=True)

    def _disk(self, name: str) -> Path:
        """A folder on a small disk of its own, where one can be made."""
        folder = self.folder / f"{name}-disk"
        folder.mkdir()
        options = ["-t", "tmpfs", "-o", f"size={_DISK_MB}m", "muntin-faults", str(folder)]
        if subprocess.run(["mount", *options], capture_output=True).returncode == 0:
            self.disks[name] = folder
        return folder

    def _process(self, name: str, words: Sequence[str], options: Mapping[str, object]) -> Process:
        more = (str(word) for option in options.items() for word in option)
        paths = f"{ROOT / 'tests' / 'faults' / 'clock'}:{ROOT}"
        env = {"PYTHONPATH": paths, "FAULTS_CLOCK": str(self._clock)}
        env |= self.bucket.env if self.bucket else {}
        return Process(name, [*words, *more], self.folder, env)

    def _agent(self, server: Server) -> Process:
        config = self.folder / f"{server.name}.toml"
        config.write_text(
            f"[streams.shop]\npaths = ['{server.path}*']\nformat = 'json'\n"
            "timestamp = 't'\nslack = '1 SECOND'\n"
        )
        options = {
            "--name": server.name,
            "--config": config,
            "--state": self._disk(server.name) / "state",
            "--nice": 0,
            "--listen": self._address(server.name),
        }
        return self._process(server.name, ["agent"], options)

    def _relay(self) -> Process:
        """One before all agents but the last, which is read directly."""
        behind = ",".join(self._addresses[server.name] for server in self.shop[:-1] or self.shop)
        options = {"--from": behind, "--listen": self._address("relay")}
        return self._process("relay", ["relay"], options)

    def _listed(self) -> Path:
        """A file with the addresses that the program asks."""
        listed = self.folder / "agents.txt"
        listed.write_text("\n".join(self._addresses.values()) + "\n")
        return listed

    def _address(self, name: str) -> str:
        self._addresses[name] = f"127.0.0.1:{free_port()}"
        return self._addresses[name]

    def set_clock(self, seconds: float) -> None:
        """Puts the clock of all processes so far ahead."""
        with self._clock.open("r+b") as clock:  # which is mapped, and may not become shorter
            clock.write(struct.pack("d", seconds))

    def strike(self, kind: str, fault: Callable[[Trial], Struck | None]) -> Struck | None:
        """Has a fault happen, if it can."""
        before = time.time()
        struck = fault(self)
        if struck is not None:
            struck.kind, struck.at = kind, before
            self.struck.append(struck)
        return struck

    def look(self, after: str) -> None:
        """Notes what is damaged in the state, whoever is using it or has just been killed."""
        self.damaged += (f"after {after}: {what}" for what in damage(self.state))

    def ask(self, number: int, final: bool = False) -> None:
        """Asks for ranges of what is retained; `final` if nobody writes and reads any more."""
        times = int(self._began) + 2, int(min(map(self.reached, self._names())))
        if times[0] >= times[1]:
            return
        streams = {"web": self.web, "shop": self.shop}
        truths = {
            stream: {s.name: s.truth() for s in servers} for stream, servers in streams.items()
        }
        known = {server.name for server in [*self.web, *self.shop]} if final else set()
        past = Past(self.state, truths, times, known - {s.target for s in self.struck if s.loses})
        ranges, wrong = past.ask(self.jobs, number, self._chance, time.time())
        self._past += ranges
        self._wrong_past += wrong

    def rest(self, seconds: float) -> None:
        """Waits for so long, and heals what is due meanwhile."""
        until = time.time() + seconds
        wait_for(lambda: self._heal(time.time()) >= until, seconds + PATIENCE)

    def _heal(self, now: float) -> float:
        """Ends what is over by now; returns that time."""
        for struck in self.struck:
            if struck.heal is not None and now >= struck.heal_at:
                heal, struck.heal = struck.heal, None
                heal()
        return now

    def go_on(self) -> None:
        """Waits until all is healed, and windows have left that begin after that."""
        rest = max((s.heal_at for s in self.struck if s.heal is not None), default=0.0)
        self.rest(max(0.0, rest - time.time()))
        behind, wanted = self._names(), time.time()

        def has_gone_on() -> bool:
            behind[:] = [name for name in self._names() if self.reached(name) < wanted + 1]
            return not behind

        try:
            wait_for(has_gone_on, PATIENCE, 4 * _POLL_SECONDS if self.bucket else _POLL_SECONDS)
        except TimeoutError:
            told = f"no windows of {', '.join(behind)} for {PATIENCE:.0f} s"
            raise UnhealedError(told) from None
        for struck in self.struck:
            struck.upto = struck.upto or time.time()

    def _names(self) -> list[str]:
        return [*(job.name for job in self.jobs), "summed"]

    def reached(self, job: str) -> float:
        """Where the last stored window of a job ends."""
        try:
            return max(Results(self.state).ends(job).values(), default=0) / 1e6
        except (MuntinError, OSError):
            return 0.0  # it is not there yet

    @property
    def known_before(self) -> float:
        """Files that were begun before this time have been read from."""
        return min(self.reached(job.name) for job in self.jobs) - 2

    def outcome(self, unhealed: str = "") -> Outcome:
        """Ends all, and compares what is stored with the truth."""
        upto = int(min(self.reached(name) for name in self._names()))
        self._stack.close()
        self.look("the end")
        left = [f"{pid}: {words}" for pid, words in self._left_behind().items()]
        files, shop = {"web": self.web}, {"shop": self.shop}
        verdict = judge(self.state, self.jobs, files | shop, upto)
        self.ask(_QUESTIONS, final=True)
        verdict.ranges, verdict.wrong = self._past, verdict.wrong + self._wrong_past
        judge_sums(self.state, "summed", self.web, upto, verdict)
        rows: Sequence[dict[str, Any]] = ()
        with suppress(InputError):  # nothing was ever stored
            rows, _ = status(self.state)
        # Windows that were shed, or of which all panes were, have no rows to be stored.
        shed = {row["job"]: row["shed"] + row["thinned"] for row in rows}
        streams = {job.name: {"web": self.web, "shop": self.shop}[job.stream] for job in self.jobs}
        hurried = {job.name for job in self.jobs if job.hurries}
        told_of = left_empty(self.program.log.read_text(errors="replace"), self.jobs)
        for name, absent in verdict.missing.items():
            missing = [w for w in absent if w not in told_of.get(name, ())]
            windows = [w for w in missing if not self._all_hurt(w, streams[name], name in hurried)]
            if len(windows) > shed.get(name, 0):
                told = f"{len(windows)} windows, {shed.get(name, 0)} of them shed: {windows}"
                verdict.absent.append(f"{name}: {told}")
        settled = [each for each in self._past if each.is_settled]
        verdict.wrong += self._unfounded([*verdict.windows, *settled])
        ends = self._unexplained()
        outcome = Outcome(
            self.seed, self.struck, verdict, ends, left, self.damaged, unhealed
        )  # fmt: skip
        if not outcome.is_good:
            self._keep()
        return outcome

    def _keep(self) -> None:
        """Keeps what there is to be studied."""
        for disk in self.disks.values():
            shutil.copytree(disk, f"{disk}-kept", symlinks=True)
        if self.bucket is not None:
            self.bucket.keep(self.folder / "bucket-kept")
        truth = {server.name: dict(server.cells) for server in [*self.web, *self.shop]}
        (self.folder / "truth.pickle").write_bytes(pickle.dumps(truth))

    def _unfounded(self, windows: Sequence[Window]) -> Iterator[Wrong]:
        """Windows that lack something of a server to which nothing had happened.

        Those with a bound may, if it is not lost: they do not wait.
        """
        hurried = {job.name for job in self.jobs if job.hurries}
        for window in windows:
            for missing in window.c2["missing"] or ():
                is_lost = missing["why"].startswith("lost")
                if window.job in hurried and not is_lost:
                    continue
                if not self._is_hit(missing["source"], window, is_lost):
                    what = f"nothing had happened to {missing['source']}, {missing['why']}"
                    yield Wrong(window, what)

    def _is_hit(self, name: str, window: Window, is_lost: bool) -> bool:
        """Whether something had happened to a server, or it wrote nothing for a second or more.

        Nothing is lost by what happens to others.
        """
        hits = [s for s in self.struck if s.at < window.left_at]
        if is_lost:
            return any(name in s.target for s in hits)
        ways = [name, *(["relay"] if name in [server.name for server in self.shop[:-1]] else [])]
        if any(s.kind == "clock jumps" or any(way in s.target for way in ways) for s in hits):
            return True
        near = range(window.start - IDLE_SECONDS - 1, window.end)
        servers = (server for server in [*self.web, *self.shop] if server.name == name)
        return any(not server.cells[second].numbers for server in servers for second in near)

    def _all_hurt(self, window: tuple[int, int], servers: Sequence[Server], hurries: bool) -> bool:
        """Whether nothing may have been there of a window: then it has no row to say so.

        Either what was written for it may be gone, or it does not wait for who was away.
        """
        start, end = window
        return all(
            any(struck.hides(window, server.name, hurries) for struck in self.struck)
            for server in servers
            if any(server.cells[second].wanted(end) for second in range(start, end))
        )

    def _left_behind(self) -> dict[int, str]:
        def left() -> dict[int, str]:
            return {pid: words for p in self.processes for pid, words in p.left().items()}

        with suppress(TimeoutError):
            wait_for(lambda: not left(), _END_SECONDS, _POLL_SECONDS)
        return left()

    def _unexplained(self) -> list[End]:
        """Ends of processes that no fault explains; one that kills explains one of them."""
        used: set[int] = set()
        unexplained = []
        for end in self._tending.ends:
            for number, struck in enumerate(self.struck):
                if struck.explains(end) and number not in used:
                    used |= set() if struck.seconds else {number}
                    break
            else:
                unexplained.append(end)
        return unexplained
