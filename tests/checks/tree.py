"""Boxes as text: one `.tree` file holds a whole recorded box, with the source of each part named beside it.

    # a comment; `# source: https://...` above a section says what its content is shaped on
    === /etc/os-release mode=0644 owner=0:0 label=system_u:object_r:etc_t:s0
    ID="rocky"
    === /dev/nvidia0 char=195:0 mode=0666
    === /dev/char/195:0 link=../nvidia0
    === /proc/kmsg error=permission
    === $ dkms status code=0
    nvidia-open/580.95.05, 4.18.0-553.el8_10.x86_64, x86_64: installed
    === @podman.inspect
    {"Name": "triton"}
    === space /data/models free=400G total=900G fs=xfs device=/dev/nvme0n1p1

A tree is written out as a folder that `--root` reads: its files, and `.gpuconsole/box.json` for what files of a
checkout cannot hold (modes, owners, labels, device numbers, what programs printed and services answered).
"""
