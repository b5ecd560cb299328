"""The text of the status page, with any names and messages."""

from cdc_platform.dashboard.facts import UnreadablePipeline
from cdc_platform.dashboard.page import PageOptions, PipelineView, write_page
from cdc_platform_tests.control_characters import NASTY, SHOWN


def test_messages_are_text_and_visible() -> None:
    """What comes from elsewhere is neither markup nor anything that the browser shows in another order."""
    problem = f"<script>alert(1)</script> {NASTY}"
    page = write_page([PipelineView("bank", UnreadablePipeline(problem), None)], 0, PageOptions(hours=24))
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert NASTY not in page
    assert "bank needs attention" in page
    assert SHOWN in page
