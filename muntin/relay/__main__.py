"""What `muntin relay` becomes."""

from muntin.interrupts import end_at_once

end_at_once()  # until it serves

from muntin.lean import Options, hide, note, started  # noqa: E402


def main(options: Options) -> None:
    """Serves as the options of the command line say."""
    hide(["pandas"])
    from muntin.relay.process import serve
    from muntin.wire.process import door_of, memory_of

    name, agents = options["name"], options["from"].split(",")
    door = door_of(options["listen"], options["keys"], name, options["mutual"])
    serve(name, agents, door, note, options["nice"], memory_of(options["memory"]))


started(main)
