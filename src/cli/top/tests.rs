//! Screens of several sizes, and what keys do to them.
