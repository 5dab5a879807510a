#!/usr/bin/env python3
"""forget_pages.py DIR...: makes the kernel forget the cached pages of the files below DIR."""

import os
import sys

for top in sys.argv[1:]:
    for where, _, names in os.walk(top):
        for name in names:
            try:
                fd = os.open(os.path.join(where, name), os.O_RDONLY)
            except FileNotFoundError:
                continue
            try:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)
