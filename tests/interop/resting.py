"""Clients that do no harm, but stay: what they had is not kept for each of them."""

from hostile import READ, SIZE, Client, Memory, Neighbour, Small
from machine import MIB
from report import Case


def cases():
    return [Case("hostile: many who have read much and rest", lambda reporter, rng: reporter.check("", resting))]


def resting():
    """Clients that read much, each after the other, and stay: what their reads took is there for the next, once."""
    with Small() as machine:
        with Memory(machine) as memory, Neighbour(machine) as neighbour:
            clients = [Client(machine) for _ in range(60)]
            for client in clients:
                [client.ask(READ, at, MIB) for at in range(0, SIZE, MIB)]
                [client.answer(MIB) for _ in range(0, SIZE, MIB)]
        memory.below(160 * MIB, 160 * MIB)
        return f"60 clients: {memory.words()}; {neighbour.words()}"
