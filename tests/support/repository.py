"""Where the checkout's folders are."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "fixtures"
SUPPORT = ROOT / "tests" / "support"
