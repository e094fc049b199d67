"""opsetta without extras: what is installed, which modules import, and what the command says."""

import importlib
import importlib.metadata
import pkgutil
import shutil
import subprocess
import sys

import opsetta

NEED_TORCH = ("opsetta.exporter.", "opsetta.huggingface", "opsetta.torch_onnx")
"""Where modules may import torch; everywhere else each module is imported without it."""


def check_contents(version: str) -> None:
    found = importlib.metadata.distribution("opsetta")
    assert found.version == opsetta.__version__ == version, (found.version, opsetta.__version__, version)
    tops = {file.parts[0] for file in found.files if ".." not in file.parts}
    assert tops == {"opsetta", f"opsetta-{version}.dist-info"}, tops
    assert any(str(file) == "opsetta/py.typed" for file in found.files)
    [command] = [entry for entry in found.entry_points if entry.group == "console_scripts"]
    assert callable(command.load()), command


def check_imports() -> None:
    """Import every module: an old Python refuses some syntax, and some patterns of `re`."""
    imported, need_torch = [], []
    # Packages that need an extra are imported below once more, and their errors looked at there.
    for module in pkgutil.walk_packages(opsetta.__path__, "opsetta.", onerror=lambda name: None):
        try:
            importlib.import_module(module.name)
        except (ModuleNotFoundError, opsetta.OpsettaError) as error:
            # A package that is an extra as a whole says what to install.
            is_told = isinstance(error, opsetta.OpsettaError) and "pip install 'opsetta[" in str(error)
            missing = None if is_told else error.name.partition(".")[0]
            allowed = (None, "torch", "typer", "rich", "onnxruntime")
            assert missing in allowed, f"{module.name} needs {missing}"
            assert module.name.startswith(NEED_TORCH), f"{module.name} needs {missing}"
            need_torch.append(module.name)
            with open(importlib.util.find_spec(module.name).origin, encoding="utf-8") as source:
                compile(source.read(), module.name, "exec")
        else:
            imported.append(module.name)
    assert "torch" not in sys.modules
    assert "opsetta.exporter.lowering.conversion.conversion" in imported
    assert len(imported) > 2 * len(need_torch), (len(imported), need_torch)
    print(f"{len(imported)} modules imported, {len(need_torch)} need an extra")


def check_command_says_what_it_needs() -> None:
    command = shutil.which("opsetta", path=f"{sys.prefix}/bin")
    done = subprocess.run([command, "ops"], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done
    assert "pip install 'opsetta[cli]'" in done.stderr, done.stderr


check_contents(sys.argv[1])
check_imports()
check_command_says_what_it_needs()
