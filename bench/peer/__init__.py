# SPDX-License-Identifier: Apache-2.0
"""The same training work in plain PyTorch and Diffusers, and inputs that are equal for both."""
