# What the protocol offers, used by hand. Leaves what protocol_verify.py looks for.
import errno
import os
import random

MIB = 1 << 20
uri, rng = os.environ["URI"], random.Random(int(os.environ["SEED"]))


def connected(contexts=True):
    handle = nbd.NBD()
    if contexts:
        handle.add_meta_context(nbd.CONTEXT_BASE_ALLOCATION)
    handle.set_strict_mode(0)  # the server must judge what arrives, not this library
    handle.connect_uri(uri)
    return handle


def refused(what, *args, want=(errno.EINVAL,)):
    try:
        what(*args)
    except nbd.Error as error:
        assert error.errnum in want, f"{what.__name__}{args[1:]}: {error}"
    else:
        raise AssertionError(f"{what.__name__} was not refused")


def extents(handle, length, offset):
    found = []
    handle.block_status(length, offset, lambda context, at, entries, error: found.append((at, entries)) and 0)
    entries = found[0][1]
    return list(zip(entries[::2], entries[1::2]))


a, b = connected(), connected()
size = a.get_size()
low, middle, high = (a.get_block_size(kind) for kind in (nbd.SIZE_MINIMUM, nbd.SIZE_PREFERRED, nbd.SIZE_MAXIMUM))
assert low == 512 and middle & (middle - 1) == 0 and high >= 32 * MIB, (low, middle, high)
assert a.can_multi_conn() and a.can_df() and a.can_fast_zero() and a.get_structured_replies_negotiated()

# Written on one connection, flushed on the other, read on a third.
one = rng.randbytes(3 * MIB + 512)
a.pwrite(one, 512)
b.flush()
c = connected(contexts=False)
assert c.pread(len(one), 512) == one

# FUA, on writes and zeroes; the zeroes at once too, or refused as not fast.
two = rng.randbytes(100 * 512)
a.pwrite(two, 5 * MIB + 512, nbd.CMD_FLAG_FUA)
assert b.pread(len(two), 5 * MIB + 512) == two
a.pwrite(rng.randbytes(2 * MIB), 6 * MIB)
b.zero(MIB, 6 * MIB + 1536, nbd.CMD_FLAG_FUA | nbd.CMD_FLAG_NO_HOLE)
assert a.pread(MIB, 6 * MIB + 1536) == bytes(MIB)
try:
    a.zero(512, 7 * MIB, nbd.CMD_FLAG_FAST_ZERO)
except nbd.Error as error:
    assert error.errnum == errno.ENOTSUP, error
a.zero(2 * MIB, 6 * MIB)
assert b.pread(2 * MIB, 6 * MIB) == bytes(2 * MIB)

# Structured reads: the chunks cover the request once; with DF there is one.
a.trim(8 * MIB, 8 * MIB)
three = rng.randbytes(MIB)
b.pwrite(three, 10 * MIB)
for flags in (0, nbd.CMD_FLAG_DF):
    chunks = []
    got = a.pread_structured(8 * MIB, 8 * MIB, lambda data, at, status, error: chunks.append((at, len(data))) and 0, flags)
    assert got == bytes(2 * MIB) + three + bytes(5 * MIB)
    at = 8 * MIB
    for start, length in sorted(chunks):
        assert start == at, chunks
        at += length
    assert at == 16 * MIB and (not flags or len(chunks) == 1), chunks

# Block status: whole, and what it calls zero is zero.
a.flush()
at = 0
while at < size:
    # A server may say less than was asked, and its last extent may reach beyond.
    for length, state in extents(a, size - at, at):
        part = min(length, size - at)
        assert length > 0 and length % 512 == 0
        if state & nbd.STATE_ZERO:
            assert not any(b.pread(min(part, 16 * MIB), at)), (at, length)
        at += part
entries = extents(a, 4096, 14 * MIB)
assert entries[0][1] == nbd.STATE_HOLE | nbd.STATE_ZERO, entries
first = []
a.block_status(16 * MIB, 0, lambda context, at, entries, error: first.extend(entries) and 0, nbd.CMD_FLAG_REQ_ONE)
assert len(first) == 2, first

# Not whole sectors, and beyond the end: refused, and the connection lives.
refused(a.pread, 511, 0)
refused(a.pread, 512, 1)
refused(a.pwrite, bytes(100), 0)
refused(a.pwrite, bytes(512), 256)
refused(a.zero, 100, 0)
refused(a.trim, 512, 100)
refused(a.pread, 1024, size - 512)
refused(a.pwrite, bytes(1024), size - 512, want=(errno.EINVAL, errno.ENOSPC))
refused(a.pread, 512, 1 << 62)
refused(a.pwrite, bytes(512), size + 512, want=(errno.EINVAL, errno.ENOSPC))
refused(a.trim, MIB, size)
refused(a.zero, MIB, size, want=(errno.EINVAL, errno.ENOSPC))
assert a.pread(len(one), 512) == one

# Many at once on several connections, then one flush.
handles = [a, b, c, connected()]
buffers = []
for n in range(64):
    data = rng.randbytes(rng.randrange(1, 64) * 512)
    buffer = nbd.Buffer.from_bytearray(bytearray(data))
    offset = 20 * MIB + n * 65536 + 512
    handle = handles[n % len(handles)]
    buffers.append((handle, handle.aio_pwrite(buffer, offset), offset, data))
for handle, cookie, _, _ in buffers:
    while not handle.aio_command_completed(cookie):
        handle.poll(-1)
handles[3].flush()
for _, _, offset, data in buffers:
    assert c.pread(len(data), offset) == data
for handle in handles:
    handle.shutdown()
