"""TensorFlow's operators: a module or folder for each subject, with parameters named as in the OpDefs."""
