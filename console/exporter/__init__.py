"""`gpuconsole exporter`: what DCGM and Triton do not tell Prometheus, from the newest Snapshot. A scrape reads nothing
of the box: it renders what the session's own threads read last."""
