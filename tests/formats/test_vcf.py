"""VCF: every allele comes back, with a reason or normalized; a haplotype is the same before and after."""

from __future__ import annotations

import gzip
import random
from collections import Counter
from pathlib import Path

import pysam
import pytest
from tiny import random_bases, write_fasta

from genoformer.errors import ConfigError, FormatError, InputError
from genoformer.formats.vcf import Info, Variants, read_variants, with_fields, with_info
from genoformer.formats.vcf_write import mode_of, writing_variants

HEADER = "##fileformat=VCFv4.2\n"
COLUMNS = "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO"


def write_vcf(path: Path, *rows: str, header: str = HEADER, columns: str = COLUMNS) -> Path:
    """Write rows of words: CHROM POS ID REF ALT, and what follows or dots."""
    lines = ["\t".join([*(words := row.split()), *["."] * (8 - len(words))]) for row in rows]
    path.write_text(header + "\n".join([columns, *lines]) + "\n")
    return path


def lines(found: Variants) -> list[str]:
    with found.open() as file:
        return [str(record).rstrip("\n") for record in file]


@pytest.fixture
def reference(tmp_path):
    self = tmp_path / "ref.fa"
    return write_fasta(self, {"a": b"acgTTTTTACGRNACGT" + random_bases(83, 1), "b": random_bases(60, 2)})


def read(path, reference, tmp_path, **options):
    folder = tmp_path / f"work{random.random()}"
    folder.mkdir()
    found = read_variants(path, reference, folder, **options)
    assert [file.name for file in folder.iterdir()] == [found.path.name]
    return found


def test_split_moved_sorted_and_nothing_lost(reference, tmp_path):
    path = write_vcf(
        tmp_path / "x.vcf",
        "b 5 late . A", "a 8 id TA T . LOW", "a 8 m T TT,TA,<DEL>,*", "a 1 . A G . PASS", "zz 3 . A C",
        "a 12 . R A", "a 13 . N A", "a 3 . T G", "a 0 . A G", "a 101 . A G", "a 1 . A a[b:3[,N", "a 2 . C .",
    )  # fmt: skip
    found = read(path, reference, tmp_path)
    assert (found.records, found.alleles, found.normal) == (12, 16, 16)
    rows = [line.split("\t") for line in lines(found)]
    assert [(row[0], int(row[1])) for row in rows] == sorted(
        ((row[0], int(row[1])) for row in rows), key=lambda place: (["b", "a", "zz"].index(place[0]), place[1])
    )
    moved = [row for row in rows if row[4] == "gT"]  # T inserted at the end of a run goes to its beginning
    assert [(row[1], row[2], row[3]) for row in moved] == [("3", "m", "g")]
    assert moved[0][7] == "GF_ORIGINAL=a|8|T|TT,TA,<DEL>,*|1"
    reasons = Counter(row[7].partition("GF_SKIPPED=")[2] for row in rows)
    assert reasons == {
        "": 4, "no_alternate": 1, "symbolic": 1, "overlapping_deletion": 1, "unknown_sequence": 1, "ambiguous": 4,
        "reference_mismatch": 1, "beyond_sequence": 2, "breakend": 1,
    }  # fmt: skip


def test_haplotypes_stay_what_they_are(reference, tmp_path):
    """Law: the sequence with an allele in it is the same whether written as given or normalized."""
    bases = "ACGTTTTTACG" + "A" * 20 + random_bases(69, 1).decode()
    reference = write_fasta(tmp_path / "r.fa", {"a": bases.encode()})
    rng = random.Random(3)
    rows, expected = [], []
    for _ in range(60):
        place = rng.randrange(len(bases) - 8)
        ref = bases[place : place + rng.randint(1, 7)]
        alts = {"".join(rng.choices("ACT", k=rng.randint(1, 6))) for _ in range(2)} - {ref}
        rows.append(f"a {place + 1} . {ref} {','.join(sorted(alts))}")
        expected += [bases[:place] + alt + bases[place + len(ref) :] for alt in alts]
    rng.shuffle(rows)
    found = read(write_vcf(tmp_path / "x.vcf", *rows), reference, tmp_path)
    made = []
    for line in lines(found):
        _, pos, _, ref, alt, *_ = line.split("\t")
        assert bases[int(pos) - 1 :].startswith(ref)
        made.append(bases[: int(pos) - 1] + alt + bases[int(pos) - 1 + len(ref) :])
    assert sorted(made) == sorted(expected)


def test_samples_info_and_filters_are_kept(reference, tmp_path):
    header = HEADER + (
        '##INFO=<ID=AF,Number=A,Type=Float,Description="f">\n##INFO=<ID=END,Number=1,Type=Integer,Description="e">\n'
        '##FILTER=<ID=LOW,Description="l">\n##FORMAT=<ID=GT,Number=1,Type=String,Description="g">\n'
        "##contig=<ID=a,length=77>\n"
    )
    path = write_vcf(
        tmp_path / "x.vcf", "a 1 x A C,G 29.5 LOW AF=0.1,0.2;UNDECLARED=1,2;END=1 GT 1/2 0|1", header=header,
        columns=COLUMNS + "\tFORMAT\ts 1\ts2",
    )  # fmt: skip
    found = read(path, reference, tmp_path)
    first, second = lines(found)
    assert first.split("\t")[5:] == [
        "29.5", "LOW", "AF=0.1;UNDECLARED=1,2;END=1;GF_ORIGINAL=a|1|A|C,G|1", "GT", "1/0", "0|1"]  # fmt: skip
    assert second.split("\t")[4] == "G"
    assert "AF=0.2;" in second
    assert len(found.notes) == 1
    assert "77 bases" in found.notes[0]


def test_what_an_earlier_run_wrote_is_replaced(reference, tmp_path):
    fields = [Info("GF_X", "A", "Float", "mine")]
    header = HEADER + '##INFO=<ID=GF_X,Number=1,Type=String,Description="old">\n'
    path = write_vcf(tmp_path / "x.vcf", "a 1 . A C . . GF_X=old;GF_SKIPPED=symbolic;GF_XY=1", header=header)
    found = read(path, reference, tmp_path, fields=fields)
    assert lines(found)[0].split("\t")[7] == "GF_XY=1"
    with found.open() as file:
        assert (file.header.info["GF_X"].number, file.header.info["GF_X"].type) == ("A", "Float")


def test_a_field_that_does_not_fit_is_noted(reference, tmp_path):
    header = HEADER + '##INFO=<ID=AF,Number=A,Type=Float,Description="f">\n'
    found = read(write_vcf(tmp_path / "x.vcf", "a 1 . A C,G . . AF=1,2,3", header=header), reference, tmp_path)
    assert any("AF" in note for note in found.notes)


@pytest.mark.parametrize("kind", ["gzip", "bgzip", "bcf"])
def test_compressed(kind, reference, tmp_path):
    path = write_vcf(tmp_path / "x.vcf", "a 1 . A C", "b 1 . " + random_bases(1, 2).decode() + " <DEL>")
    expected = lines(read(path, reference, tmp_path))
    other = tmp_path / "y"
    if kind == "bcf":
        from genoformer.formats.htslib import quiet_and_offline

        text = path.read_text().replace("#CHROM", "##contig=<ID=a>\n##contig=<ID=b>\n#CHROM")
        path.write_text(text)
        with quiet_and_offline():
            pysam.bcftools.view("-Ob", "-o", str(other), str(path), catch_stdout=False)
    elif kind == "gzip":
        other.write_bytes(gzip.compress(path.read_bytes()))
    else:
        with pysam.BGZFile(str(other), "wb", None) as stream:
            stream.write(path.read_bytes())
    assert lines(read(other, reference, tmp_path)) == expected


def test_no_records(reference, tmp_path):
    found = read(write_vcf(tmp_path / "x.vcf"), reference, tmp_path)
    assert (found.records, found.normal, lines(found)) == (0, 0, [])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"), (">a\nACGT\n", "is not VCF"), (HEADER, "header"), (HEADER + "#CHROM\n", "header"),
        (HEADER + COLUMNS + "\na\t1\t.\tA\n", "record 1, after the header"),
        (HEADER + COLUMNS + "\na\t1\t.\tA\tC\t.\t.\t.\na\tx\t.\tA\tC\t.\t.\t.\n", "record 2, after a:1"),
        (HEADER + COLUMNS + "\nc\t1\t.\tA\tC\t.\t.\t.\n", "it has 'a', 'b'"),
    ],
)  # fmt: skip
def test_damage_is_one_line(text, words, reference, tmp_path):
    path = tmp_path / "x.vcf"
    path.write_text(text)
    with pytest.raises((FormatError, InputError), match=words) as caught:
        read(path, reference, tmp_path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_cut_short(reference, tmp_path):
    whole = gzip.compress(write_vcf(tmp_path / "x.vcf", *["a 1 . A C"] * 3000).read_bytes())
    (tmp_path / "cut.vcf.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises((FormatError, InputError), match=r"cut\.vcf\.gz"):
        read(tmp_path / "cut.vcf.gz", reference, tmp_path)


def test_reference_must_be_fasta(reference, tmp_path):
    path = write_vcf(tmp_path / "x.vcf", "a 1 . A C")
    with pytest.raises(InputError, match="no such file"):
        read(path, tmp_path / "none.fa", tmp_path)
    with pytest.raises(InputError, match="FASTA"):
        read(path, Path(__file__).parents[2] / "data" / "lambda_reads.bam", tmp_path)


def test_text_of_records():
    line = "a\t1\t.\tA\tC\t.\t.\tX;Y=1\tGT\t0/1\n"
    assert with_info(line, {"Z": "2"}, drop={"Y"}) == "a\t1\t.\tA\tC\t.\t.\tX;Z=2\tGT\t0/1\n"
    assert with_info("a\t1\t.\tA\tC\t.\t.\tX", {}, drop={"X"}).split("\t")[7] == ".\n"
    text = with_fields("##a\n##INFO=<ID=B,x>\n##INFO=<ID=BC,x>\n#CHROM\n", [Info("B", "1", "Float", "new")])
    assert text == '##a\n##INFO=<ID=BC,x>\n##INFO=<ID=B,Number=1,Type=Float,Description="new">\n#CHROM\n'


# Writing

RECORD = "a\t1\t.\tA\tC\t.\t.\t.\n"


@pytest.mark.parametrize(
    ("name", "index"), [("x.vcf.gz", ".tbi"), ("x.bcf", ".csi"), ("x.vcf", ""), ("X.VCF.GZ", ".tbi")]
)
def test_written_whole_and_indexed(name, index, tmp_path):
    for stale in (".tbi", ".csi"):
        (tmp_path / f"{name}{stale}").write_text("stale")
    with writing_variants(str(tmp_path / name), lengths={"a": 100}) as write:
        write(f"{HEADER}##contig=<ID=a,length=100>\n{COLUMNS}\n")
        write(RECORD)
        assert not (tmp_path / name).exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, name + index] if index else [name])
    with pysam.VariantFile(str(tmp_path / name)) as file:
        found = list(file.fetch("a", 0, 1)) if index else list(file)
        assert [str(record) for record in found] == [RECORD]


def test_long_sequences_get_csi(tmp_path):
    """Fault 21."""
    with writing_variants(str(tmp_path / "x.vcf.gz"), lengths={"a": 1 << 30}) as write:
        write(f"{HEADER}##contig=<ID=a,length={1 << 30}>\n{COLUMNS}\n")
        write("a\t1000000000\t.\tA\tC\t.\t.\t.\n")
    assert (tmp_path / "x.vcf.gz.csi").exists()
    with pysam.VariantFile(str(tmp_path / "x.vcf.gz")) as file:
        assert len(list(file.fetch("a", 999_999_999, 1_000_000_000))) == 1


@pytest.mark.parametrize("name", ["x.vcf.gz", "x.bcf", "x.vcf"])
def test_nothing_is_left_of_a_failure(name, tmp_path):
    (tmp_path / name).write_text("precious")

    def fail() -> None:
        with writing_variants(str(tmp_path / name), lengths={}) as write:
            write(HEADER)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "precious"


def test_names_that_say_nothing():
    with pytest.raises(ConfigError, match=r"\.vcf\.gz"):
        mode_of("x.gz")
