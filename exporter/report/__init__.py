"""Reports about exports: facts in a `Report`, and a page that shows them."""
