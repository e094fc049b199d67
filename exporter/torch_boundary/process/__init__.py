"""The state of the process around a run of torch: one lock, settings that are restored, suppressed output."""
