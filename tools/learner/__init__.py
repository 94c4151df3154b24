"""The learner's loop: starter files made from the one true source, the tests against them, hints, solutions."""
