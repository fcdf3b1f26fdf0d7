# Writes blocks of one byte each, EDITS = "offset:byte ...", and flushes.
import os

h.connect_uri(os.environ["URI"])
for edit in os.environ["EDITS"].split():
    at, byte = map(int, edit.split(":"))
    h.pwrite(bytes([byte]) * 4096, at)
h.flush()
h.shutdown()
