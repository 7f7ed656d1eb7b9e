"""What the documents show with tensorflow installed."""

from framework_sessions import session_test

test_commands_print_what_the_document_shows = session_test("tensorflow")
