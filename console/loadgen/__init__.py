"""Load generation in a process of its own: inputs, schedule, sender, histogram, and the record of a run."""
