"""A demo's command, run in this process."""

import signal

import pytest


@pytest.fixture
def run_here(capsys):
    """Runs a demo's `main`: the status, its output, its errors."""

    def run(main, *arguments: str) -> tuple[int, str, str]:
        try:
            status = main(arguments)
        except SystemExit as ended:
            status = ended.code
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def interrupt_each_step(monkeypatch):
    """Ctrl-C comes when a demo's step has been shown."""

    def interrupt(demo):
        class Interrupted(demo.Progress):
            def __call__(self, step):
                super().__call__(step)
                signal.raise_signal(signal.SIGINT)

        monkeypatch.setattr(demo, "Progress", Interrupted)

    return interrupt
