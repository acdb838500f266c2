"""Programs that are compared, each in a process of its own and in turns, so that a busy machine slows all of them alike."""

import importlib.util
import multiprocessing
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any

Turn = Callable[[], Any]


def in_turns(programs: Mapping[str, Callable[[], Turn]], rounds: int) -> dict[str, list[Any]]:
    """What the turns of each program returned, in `rounds` rounds. A program is a function of a module, which makes the turn
    in the process; "PyTorch" is left out where there is none."""
    context = multiprocessing.get_context("spawn")
    connections = {}
    for name, program in programs.items():
        if name != "PyTorch" or importlib.util.find_spec("torch"):
            connections[name], there = context.Pipe()
            context.Process(target=answer, args=(program, there), daemon=True).start()
    results: dict[str, list[Any]] = {name: [] for name in connections}
    for _ in range(rounds):
        for name, connection in connections.items():
            connection.send(True)
            results[name].append(connection.recv())
    for connection in connections.values():
        connection.send(False)
    return results


def answer(program: Callable[[], Turn], connection: Connection) -> None:
    turn = program()
    while connection.recv():
        connection.send(turn())
