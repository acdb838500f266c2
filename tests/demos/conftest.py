"""A demo's command, run in this process."""

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
