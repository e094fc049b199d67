"""What tests of commands share."""

import pytest

from opsetta.exporter.command_line import cli


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """Run the command line in an empty folder; gives the exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        with pytest.raises(SystemExit) as caught:
            cli.main([str(argument) for argument in arguments])
        captured, code = capsys.readouterr(), caught.value.code
        # The interpreter writes a code that is a text to stderr, and ends with 1.
        return (1, captured.out, captured.err + code) if isinstance(code, str) else (code or 0, *captured)

    return call
