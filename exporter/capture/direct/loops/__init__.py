"""Python loops over a dynamic size, which become one operator."""
