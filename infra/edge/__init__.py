"""The upload front door's functions, which CloudFront runs at its edge: Lambda@Edge, in Python, without a framework.

`viewer` checks a request before anything of it goes on, `origin` sets room aside before S3 gets the bytes and makes them
the file afterwards. Neither sees the body: that goes from CloudFront straight to S3.
"""
