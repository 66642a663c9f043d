"""Records that are kept: plan, request, report, measured costs, and their schemas."""
