"""Runs one of the applications beside this file on os-ken: start.py APPLICATION PORT [APPLICATION'S OPTIONS].

os-ken listens for switches on 127.0.0.1, TCP port PORT. Prints `ready` when its applications are loaded.
"""

import os
import sys

os.environ.setdefault("OSKEN_HUB_TYPE", "native")  # threads of Python

from os_ken import cfg  # noqa: E402: the environment comes first
from os_ken.base.app_manager import AppManager  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    application, port = sys.argv[1:3]
    sys.path.insert(0, HERE)
    import os_ken.controller.controller  # noqa: F401: registers its options
    import os_ken.topology.switches  # noqa: F401: the same

    options = ["--ofp-listen-host", "127.0.0.1", "--ofp-tcp-listen-port", port]
    if application == "topology":
        options.append("--observe-links")
    cfg.CONF(options, project="os_ken", default_config_files=[])
    print("ready", flush=True)
    AppManager.run_apps([application, "os_ken.controller.ofp_handler"])


if __name__ == "__main__":
    main()
