"""`pdm bench flashtile FORM`: command lines and results in the forms that users of FlashTile know."""
