"""`python -m opsetta.torch_onnx SCRIPT ARGUMENTS...`: runs a program with torch.onnx replaced."""

import sys

from .exporting.script_runner import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
