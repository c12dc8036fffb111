"""Skills: tools for well-known services, declared as tables of requests, and instructions in files.

Their requests go through the HTTP performer, so that checks, limits and previews are the same for every caller.
"""
