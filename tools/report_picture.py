"""Take the picture of a report that README and the documentation show; run by hand, needs Chromium."""


# The report: seepage audit --batch-size 8 --attack unmix --defense none --defense 'gaussian_noise:{scale: 0.001}' \
#   --defense 'gaussian_noise:{scale: 0.01}' \
#   --defense 'dp_sgd:{epsilon: 8}' --victims 20 --out picture
# Then: python tools/report_picture.py picture

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import ViewportSize, sync_playwright

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "assets" / "report.png"
SIZE: ViewportSize = {"width": 1120, "height": 720}


def take(report: Path) -> bytes:
    """Return the first screen of a report as PNG with a palette, which is a third of the size."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport=SIZE, device_scale_factor=1.5, color_scheme="light")
        page.goto(report.resolve().as_uri())
        page.wait_for_load_state("networkidle")
        shot = page.screenshot()
        browser.close()
    written = io.BytesIO()
    Image.open(io.BytesIO(shot)).convert("RGB").quantize(128).save(written, "PNG", optimize=True)
    return written.getvalue()


if __name__ == "__main__":
    PICTURE.write_bytes(take(Path(sys.argv[1]) / "report.html"))
