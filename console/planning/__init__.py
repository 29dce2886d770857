"""Pure arithmetic: the dynamic batcher as an event-exact model."""
