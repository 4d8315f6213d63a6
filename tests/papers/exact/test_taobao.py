"""Taobao's ad log in its published form, its small copy, and the generated one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from seepage.datasets import load
from seepage.datasets.dataset import Dataset
from seepage.errors import BadInputError
from seepage.tabular.schema import Discrete

PRIVATE = {"cms_group": 13, "age": 7, "pvalue": 3, "shopping": 3, "occupation": 2}


def write(folder: Path) -> None:
    """Write a log of three files as they are published: unknown users, missing levels and brands, padded names."""
    (folder / "raw_sample.csv").write_text(
        "user,time_stamp,adgroup_id,pid,nonclk,clk\n"
        "1,1494137644,10,430548_1007,1,0\n"
        "2,1494638778,11,430539_1007,0,1\n"
        "3,1494638779,10,430539_1007,1,0\n"
        "9,1494638780,10,430539_1007,1,0\n"
        "2,1494638781,10,430548_1007,1,0\n"
    )
    (folder / "ad_feature.csv").write_text(
        "adgroup_id,cate_id,campaign_id,customer,brand,price\n10,6406,83237,1,95471.0,170.0\n11,6406,83237,1,,199.5\n"
    )
    (folder / "user_profile.csv").write_text(
        "userid,cms_segid,cms_group_id,final_gender_code,age_level,pvalue_level,shopping_level,occupation,"
        "new_user_class_level \n1,0,5,2,5,,3,0,3.0\n2,0,4,2,4,2.0,3,1,\n3,7,3,1,3,1.0,1,0,1.0\n"
    )


def frame(data: Dataset) -> pd.DataFrame:
    return data.all.frame.sort_values(list(data.all.frame.columns)).reset_index(drop=True)


def test_the_three_files_are_joined(tmp_path: Path) -> None:
    write(tmp_path)
    data = load("taobao", tmp_path, missing="category", test_share=0.3)
    found = frame(data)
    # The user without a profile is gone; the one without a purchase level is there.
    assert len(found) == 4
    assert sorted(found["pvalue"].astype(int)) == [0, 1, 2, 2]
    assert sorted(found["brand"].astype(int)) == [0, 95471, 95471, 95471]
    clicked = found[found["clk"].astype(int) == 1]
    assert clicked[["price", "age", "occupation"]].astype(float).to_numpy().tolist() == [[199.5, 4.0, 1.0]]
    assert len(frame(load("taobao", tmp_path, test_share=0.4))) == 3
    assert len(frame(load("taobao", tmp_path, rows=2, test_share=0.5))) == 2


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "user_profile.csv").write_text("userid,age_level\n1,5\n")
    with pytest.raises(BadInputError, match=r"user_profile.csv should have the columns .* lacks 'cms_group_id'"):
        load("taobao", tmp_path)
    (tmp_path / "user_profile.csv").unlink()
    with pytest.raises(BadInputError, match="user_profile"):
        load("taobao", tmp_path)


def test_the_small_copy(real) -> None:
    data = load("taobao", real("alimama_sampled_train.txt"), missing="category")
    assert len(data.all) == 500
    assert int(data.all.labels.sum()) == 210
    by_name = {column.name: column for column in data.schema.columns}
    assert isinstance(by_name["pvalue"], Discrete)
    assert by_name["pvalue"].categories == (0, 1, 2, 3)
    assert "not Taobao" not in data.notes[0]
    assert len(load("taobao", real("alimama_sampled_train.txt")).all) == 297


def test_the_generated_log_is_like_the_published_one_and_says_that_it_is_none() -> None:
    data = load("taobao_synthetic", rows=20_000, seed=1)
    widths = {c.name: c.width for c in data.schema.columns if isinstance(c, Discrete)}
    assert {name: widths[name] for name in PRIVATE} == PRIVATE
    assert float(data.all.labels.mean()) == pytest.approx(0.0514, abs=0.001)
    assert data.notes == ("generated with seed 1: not Taobao's log",)
    cells = {name: data.all.column(i).numpy() for i, name in enumerate(data.schema.names)}
    # A group is that of an age, and an advertisement is of one customer.
    pairs = {
        name: len(np.unique(np.stack([cells[name], cells[other]]), axis=1).T)
        for name, other in (("cms_group", "age"), ("adgroup", "customer"))
    }
    assert pairs == {"cms_group": 13, "adgroup": len(np.unique(cells["adgroup"]))}
    same, other = load("taobao_synthetic", rows=20_000, seed=1), load("taobao_synthetic", rows=20_000, seed=2)
    assert torch.equal(same.train.cells, data.train.cells)
    assert not torch.equal(other.train.labels, data.train.labels)
    assert "cms_group" not in load("taobao_synthetic", rows=200, cms_group=False).schema.names
    with pytest.raises(BadInputError, match="at least 100 rows, got 99"):
        load("taobao_synthetic", rows=99)
