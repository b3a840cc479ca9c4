"""NNVM's passes over ``Graph``, under NNVM's names; importing this package registers them."""
