"""Make the bucket of the lake, if it is missing."""

import os

from pyarrow.fs import S3FileSystem


def make_bucket(endpoint: str, bucket: str) -> None:
    """Make a bucket with the lake's credentials; one that is there stays as it is."""
    store = S3FileSystem(
        endpoint_override=endpoint,
        region="us-east-1",
        access_key=os.environ["LAKE_ACCESS_KEY_ID"],
        secret_key=os.environ["LAKE_SECRET_ACCESS_KEY"],
        allow_bucket_creation=True,
    )
    store.create_dir(bucket)


if __name__ == "__main__":
    make_bucket("http://s3:8333", "lake")
