"""Operators while processes fork and end, after a second import, and in other interpreters."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("dlbridge_example", reason="the example extension is not installed")

START = f"""
import os, signal, sys, threading, time
signal.alarm(300)
sys.path = {sys.path!r}
import numpy as np
import operators
"""


def run(program: str) -> str:
    """What a process prints that runs the program."""
    program = START + textwrap.dedent(program)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_a_child_that_is_forked_calls_operators(framework):
    """JAX itself warns of forks."""
    pytest.importorskip(framework)
    run(f"""
        import {framework}
        my = operators.load()
        x, array = {framework}.ones(1000), np.ones(1000)
        my.same(x), my.same.ufunc(array)
        running = True

        def call():
            while running:
                my.same(x), my.same(array), my.same.ufunc(array)

        threads = [threading.Thread(target=call) for _ in range(2)]
        [thread.start() for thread in threads]
        for _ in range(20):
            child = os.fork()
            if not child:
                signal.alarm(100)
                assert my.same(x).sum() == my.same(array).sum() == my.same.ufunc(array).sum()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        running = False
    """)


@pytest.mark.parametrize("call", ["my.same(x)", "my.same.ufunc(x)", "failed(x)", "my.calling(x)"])
def test_daemon_threads_do_not_abort_the_process(call):
    """Those that call PyTorch or JAX do, without operators as well, before Python 3.14."""
    run(f"""
        import types
        my, x = operators.load(), np.ones((100_000, 2), np.float32)
        sys.modules["callbacks"] = types.SimpleNamespace(callback=lambda: sum(range(100)))

        def failed(x):
            try:
                my.fail.ufunc(x, 0)
            except ValueError:
                pass

        def loop():
            while True:
                {call}

        for _ in range(4):
            threading.Thread(target=loop, daemon=True).start()
        time.sleep(0.2)
    """)


def test_a_module_that_is_imported_again_has_its_operators():
    pytest.importorskip("torch")
    pytest.importorskip("jax")
    run("""
        import torch
        first = operators.load()
        import jax.numpy as jnp
        first.same(jnp.ones(2))
        del sys.modules[first.__name__]
        again = operators.load()
        assert again.same is first.same
        assert again.same(torch.ones(2)).tolist() == again.same(jnp.ones(2)).tolist() == [1, 1]
    """)


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_two_extensions_have_operators_of_their_own(framework, tmp_path):
    pytest.importorskip(framework)
    run(f"""
        import shutil
        copy = shutil.copy(operators.library(), {str(tmp_path / "other.so")!r})
        import {framework}
        if "{framework}" == "torch":
            ones = lambda: torch.ones(3, requires_grad=True)
            compiled = torch.compile(backend="aot_eager", fullgraph=True)
            gradient = lambda call: torch.autograd.grad(call(x := ones()), x)[0]
        else:
            ones, compiled = lambda: jax.numpy.ones(3), jax.jit
            gradient = lambda call: jax.grad(call)(ones())

        def check(my, compiled=lambda call: call):
            operator = getattr(my.weighted, "{framework}")
            call = compiled(lambda x: operator(x, x).sum())
            assert call(ones()) == my.same(ones()).sum() == 3
            assert gradient(call).tolist() == [2, 2, 2]

        first = operators.load()
        check(first)
        second = operators.load("other_operators", copy)
        check(second, compiled)
        check(first, compiled)
        assert type(first.same) is not type(second.same)
        for module in (first, second):
            del sys.modules[module.__name__]
            again = operators.load(module.__name__, module.__file__)
            assert again.same is module.same
            check(again)
    """)


def test_an_operator_is_first_asked_for_by_many_threads_or_a_compiler():
    pytest.importorskip("torch")
    pytest.importorskip("jax")
    run("""
        from support import failures_in_threads
        my = operators.load()
        import torch

        def compiled(x):
            return my.same.torch(x) + my.weighted(x, x)

        found = torch.compile(compiled, backend="aot_eager", fullgraph=True)(torch.ones(2))
        assert found.tolist() == [2, 2]
        assert failures_in_threads(8, lambda: (my.times.torch, my.times.jax, my.times.ufunc)) == []
    """)


def test_a_sub_interpreter_is_refused():
    printed = run("""
        operators.load()
        try:
            import _interpreters as interpreters
            run = lambda code: interpreters.exec(interpreters.create("legacy"), code)
        except ImportError:
            import _xxsubinterpreters as interpreters
            run = lambda code: interpreters.run_string(interpreters.create(), code)
        run(f'''if True:
            import sys
            sys.path = {sys.path!r}
            import operators
            try:
                operators.load()
            except ImportError as error:
                print(error, flush=True)
        ''')
    """)
    assert "expected the main interpreter, found a sub-interpreter" in printed
