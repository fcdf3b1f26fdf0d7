"""A process of its own: joins a control group, makes a copy of a file through a mapping, all pages twice. They become
dirty without any call that could be slowed down."""

import mmap
import os
import sys

PAGE = 4096


def main(tasks, source, path):
    with open(tasks, "w") as file:
        file.write(str(os.getpid()))
    with open(source, "rb") as file:
        data = file.read()
    with open(path, "w+b") as file:
        file.truncate(len(data))
        with mmap.mmap(file.fileno(), len(data)) as pages:
            for wrong in (True, False):
                # Every other page forwards, the others backwards: no turn is a stream.
                for at in [*range(0, len(data), 2 * PAGE), *range(len(data) - PAGE, 0, -2 * PAGE)]:
                    pages[at:at + PAGE] = data[at:at + PAGE][::-1] if wrong else data[at:at + PAGE]
            pages.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
