"""The simulated box behind `gpuconsole --demo`: no GPU, no root, no server needed, on Linux and macOS.

It runs in a process of its own (`launch.start`, or `python -m console.simulator --scene S --seed N --dir DIR`) and
speaks the real protocols, so that everything from the clients upwards is the code that reads a real box:

    launch.py          start it, wait until it is ready, end it; used by the composition root and by tests
    __main__.py        its command line; process.py: clock, tick, state files, the end when its parent goes
    box.py             the state: traffic, models, card, container; `Box.advance` is the only way time passes
    scenes.py          the scenes as data, each with the verdict that it is made to show
    card.py            the GPU's figures, from how busy the models keep it
    triton_server.py   Triton's HTTP and metrics ports on loopback (metrics_page.py, inference.py, configs.py)
    podman_service.py  libpod's REST API on a Unix socket (podman_shapes.py)
    nvml.py            a stand-in for the module pynvml, reading the state file that is written each second
    host.py            the machine: a folder that stands for `/`, with the files of /proc, /sys and /etc that count
    recording.py       what files cannot hold (devices, labels, units, what programs print), for checks; from host.toml
    repository.py      the model repository on disk, its model files sparse; server_log.py: what the server logged

Behind Triton's figures is `planning/batcher.py`, event by event, so they fit together as a real server's do. With a
seed the sequence of events in simulated time is fixed. In a `stepped` box time moves only by `RunningBox.step`, and an
inference then waits for the next step. `models=N` serves N small models, a part of them under traffic, for measuring.

The process id that NVML and Podman name is above Linux's largest possible one, so it is no real process's.
Not simulated: gRPC, loading and unloading (the server says that it was started with model control off), changes to the
container, and the sizes of file systems but for checks: they are those of the folder that the files lie in.
"""
