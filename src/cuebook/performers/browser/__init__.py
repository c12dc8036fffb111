"""Web pages in the system's Chromium, which runs in bubblewrap and reaches only the hosts of the run's playbook.

Playwright is imported when a run first needs a browser.
"""
