"""The records of TensorFlow operators, a module for each subject: each has a list `RECORDS`."""
