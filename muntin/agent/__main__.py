"""What `muntin agent` becomes."""

from muntin.interrupts import end_at_once

end_at_once()  # until it serves

from muntin.lean import Options, hide, note, started  # noqa: E402


def main(options: Options) -> None:
    """Serves as the options of the command line say."""
    if not options["allow_code"]:  # which may need it
        hide(["pandas"])
    from pathlib import Path

    from muntin.agent.process import serve
    from muntin.agent.settings import Limits, read_settings
    from muntin.wire.process import door_of, memory_of

    door = door_of(options["listen"], options["keys"], options["name"], options["mutual"])
    limits = Limits(memory_of(options["memory"]), options["cpu"], options["allow_code"])
    config, state = Path(options["config"]), Path(options["state"])
    settings = read_settings(config, options["name"], state, limits)
    serve(settings, door, note, options["nice"])


started(main)
