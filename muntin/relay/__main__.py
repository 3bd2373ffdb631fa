"""What `muntin relay` becomes."""

from muntin.lean import Options, hide, note, started
from muntin.loading import loading


def main(options: Options) -> None:
    """Serves as the options of the command line say."""
    hide(["pandas"])
    with loading():
        from muntin.relay.process import serve
        from muntin.wire.process import door_of, memory_of

    name, agents = options["name"], options["from"].split(",")
    door = door_of(options["listen"], options["keys"], name, options["mutual"])
    serve(name, agents, door, note, options["nice"], memory_of(options["memory"]))


started(main)
