"""The results of sweeps: files of rows, and the matrix that shows them."""
