"""The learner's loop: starter files made from the one true source, hints, solutions."""
