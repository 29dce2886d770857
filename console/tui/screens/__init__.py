"""The screens: Overview, Models, Container, Timeline, GPU, Problems, Why."""
