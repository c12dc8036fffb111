"""Connects Playwright to a browser that it did not start. Playwright runs this program as if it were the browser.

Its descriptors 3 and 4 are Playwright's; those of the browser arrive over the local socket that is named as its argument.
"""

import os
import socket
import sys
import threading


def copy(source: int, target: int) -> None:
    try:
        while piece := os.read(source, 1 << 16):
            while piece:
                piece = piece[os.write(target, piece) :]
    except OSError:
        pass
    finally:
        os.close(target)


if __name__ == "__main__":
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(sys.argv[1])
        received = socket.recv_fds(link, 16, 2)[1]
    to_browser, from_browser = received
    threading.Thread(target=copy, args=(3, to_browser), daemon=True).start()
    copy(from_browser, 4)
