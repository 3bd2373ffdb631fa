"""An agent as a process of its own: it serves, reads, and ends when it is told to."""

from __future__ import annotations

import os
from collections.abc import Callable

from muntin.agent.agent import Agent
from muntin.agent.folder import held
from muntin.agent.settings import KIND, AgentSettings
from muntin.kernel.engine import confine
from muntin.wire import process
from muntin.wire.process import Door


def serve(settings: AgentSettings, door: Door, tell: Callable[[str], None], nice: int = 0) -> None:
    """Runs an agent until it is sent SIGINT or SIGTERM."""
    door.host(KIND)  # refused before anything is made
    confine(settings.limits.room // 2)
    os.nice(nice)
    with held(settings.state, settings.name):
        agent = Agent(settings)
        process.serve(agent, KIND, settings.name, door, tell, agent.run, agent.stop)
