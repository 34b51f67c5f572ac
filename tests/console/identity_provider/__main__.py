"""Fetches the packages of the provider."""

from tests.console.identity_provider import packages

packages()
