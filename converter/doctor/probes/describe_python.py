"""Write where a Python finds its packages; run by that Python, in a child.

``answer.json`` is ``{"path", "version"}``. It imports nothing of the project.
"""

import json
import os
import sys

if __name__ == "__main__":
    with open(os.path.join(sys.argv[1], "answer.json"), "w") as f:  # noqa: PTH118, PTH123 - any Python
        json.dump({"path": sys.path, "version": sys.version.split()[0]}, f)
