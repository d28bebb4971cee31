"""``python -m xlnet``."""

import sys

from xlnet.cli import main

sys.exit(main())
